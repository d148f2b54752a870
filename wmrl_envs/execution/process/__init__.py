"""Solutions in processes of this machine, isolated by namespaces or Landlock; `box` is what runs inside."""
