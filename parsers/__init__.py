"""Reads Nsight exports into tidy tables; holds what writer and reader share."""
