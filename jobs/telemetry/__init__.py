"""Metrics of the installation, and a log handler that turns outages into few lines.

Entry points: `metrics.read_metrics`, `outage_log.OutageHandler`.
"""
