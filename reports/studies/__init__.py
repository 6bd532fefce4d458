"""Studies: one package or module per benchmark target. Only reports.studies.registry knows them."""
