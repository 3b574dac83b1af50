"""The command line: one file for each verb. The only place that prints."""
