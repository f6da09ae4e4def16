"""From a parsed answer to the tokens to train on: match, judge, and write the segments."""
