"""From a record to the model's answer: prompts, pictures, and what ends a loop."""
