"""Generating text: a model file's vocabulary and chat template, one compiled program a phase, a paged cache, sampling."""
