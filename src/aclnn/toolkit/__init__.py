"""The C toolkit: headers and libraries to compile, link and run unmodified aclnn programs in C and C++.

Headers and entry points are generated from the operator declarations and from the table of C functions in
``aclnn.capi``. The libraries embed Python (see ``entry_points``), so C programs run the same code as Python programs.
"""
