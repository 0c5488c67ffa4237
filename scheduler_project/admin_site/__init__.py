"""Django's admin site, with audit records of every change made on its pages.

Entry point: `site.AuditedAdminSite`.
"""
