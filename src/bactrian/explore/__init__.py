"""The explorer: runs, conversations, statistics and live sessions as local web pages."""
