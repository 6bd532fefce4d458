"""Reports about measured cases; their studies are those of reports.studies.registry."""
