"""Roofs: from data sheets, from measured probes, from earlier runs."""
