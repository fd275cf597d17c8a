"""The conformance kit: the contract that every environment must satisfy."""
