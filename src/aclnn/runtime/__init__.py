"""The host runtime: devices, contexts, streams, events, memory, error texts.

Errors are ``AclnnError`` with the code of the ACL tables and a text that begins with the argument's C name.
"""
