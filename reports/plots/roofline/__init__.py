"""The hierarchical roofline: its log-log plane, roofs, zones and markers."""
