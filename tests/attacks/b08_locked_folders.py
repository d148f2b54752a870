# what a clean-up could stumble over: folders without permissions, odd names, links to outside, a deep tree
import os
os.makedirs("locked/inner"); open("locked/inner/f", "w").close(); os.chmod("locked/inner", 0); os.chmod("locked", 0)
os.symlink("/", "root"); os.symlink("..", "up"); open(b"\xff\xfe\n", "w").close()
print("locked", flush=True)
try:
    for _ in range(300): os.mkdir("deep" * 20); os.chdir("deep" * 20)
except OSError as e: print("depth", e.errno)
