"""What runs on the other side: the server, its supervisors and the runner. Standard library only, since the interpreter
is the sandbox's own; imported there as the package `box`, without the rest of WMRL.
"""
