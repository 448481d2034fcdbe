"""Studies: many scenarios of one question, run on many processes, resumable, with tables and a page. See ``docs/studies.md``.

This package knows how scenarios are listed, run once each, kept and shown. What a scenario is it takes from a
:class:`hetsched.scenarios.Subject`.
"""
