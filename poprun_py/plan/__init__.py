"""Plan: the launch plan (which instance runs where, and with what) and its report; nothing here starts anything."""
