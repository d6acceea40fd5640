"""Feeds: the data that programs take and give, through queues over data sets and arrays."""
