"""The C toolkit: headers and libraries with which unmodified aclnn C and C++ programs compile, link and run.

Headers and entry points are generated from the operators' declarations and the table of C functions in ``aclnn.capi``;
the libraries embed Python (see ``entry_points``), so a C program runs the same code as a Python one.
"""
