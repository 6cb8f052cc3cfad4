"""Callbacks for trainers that others wrote; each module needs only the package it is named after."""
