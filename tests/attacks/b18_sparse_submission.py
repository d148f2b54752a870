# a sparse submission costs the program nothing and is as long as it may be: what does reading it back cost?
import os

with open(os.environ["SUBMISSION_PATH"], "wb") as file:
    file.truncate(8 << 20)
