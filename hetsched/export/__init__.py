"""Plans as folders of files that a vendor's runtime loads, without this project.

:mod:`hetsched.export.bundle` holds what every bundle has in common (manifest, golden vectors, versions); each other module writes
the files of one runtime.
"""
