"""From weighted advantages to new weights: the GRPO objective and the learners that apply it."""
