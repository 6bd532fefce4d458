"""Reports as single HTML files, made from the markdown of the report and nothing else."""
