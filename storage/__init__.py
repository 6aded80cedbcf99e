"""The time series: the only package that talks to the database."""
