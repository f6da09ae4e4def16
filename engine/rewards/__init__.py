"""From a completion to its reward and the reason for it. One file a verifier in `verifiers/`."""
