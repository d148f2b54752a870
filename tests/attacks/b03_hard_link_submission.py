# a second name of some other file
import os
open("other", "w").write("id,y\n"); os.link("other", os.environ["SUBMISSION_PATH"])
