"""Machines that are not there: the real package in a process that sees other cgroups than the host's."""
