"""What pages and commands say: words, headlines, findings, times in the lane's zone."""
