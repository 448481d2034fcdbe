"""Reports: one self-contained HTML file from plans, traces and checks. See ``docs/report.md``."""

from __future__ import annotations

from hetsched.report.items import CheckItem, ComparisonItem, PlanItem, ReportItem, TraceItem
from hetsched.report.page import html, render

__all__ = ["CheckItem", "ComparisonItem", "PlanItem", "ReportItem", "TraceItem", "html", "render"]
