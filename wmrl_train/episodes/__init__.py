"""Episodes: their records, the store of finished ones, and the lanes in which groups of them are rolled out."""
