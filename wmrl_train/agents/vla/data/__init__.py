"""Demonstrations: recorded, read from LIBERO's HDF5 files and from LeRobot data sets."""
