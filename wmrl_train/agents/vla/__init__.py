"""Vision-language-action policies: MiniVLA, its demonstrations and its evaluation. Modules load torch where they need it."""
