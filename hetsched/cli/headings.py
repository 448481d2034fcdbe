"""Headings under which the options of ``plan --help`` stand (:class:`hetsched.cli.verbs.Headed`)."""

MODEL = "The model"
TARGET = "Where it runs and what that costs"
ANSWER = "What is looked for"
LIMITS = "What the plan may not do"
LANGUAGE = "Language models"
SEVERAL = "Several models at once"
#: As they are shown.
ORDER = (MODEL, TARGET, ANSWER, LIMITS, LANGUAGE, SEVERAL)
