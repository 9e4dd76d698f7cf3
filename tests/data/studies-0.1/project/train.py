import os
import sys
import time

import windlass

n, seed = int(sys.argv[1]), int(sys.argv[2])
if n == 3:
    sys.exit(4)
for step in range(5):
    windlass.log(step=step, loss=n / (step + 1) + seed)
    time.sleep(float(os.environ.get("PAUSE", "0")))
with open("model.txt", "w") as file:
    file.write(f"model {n} {seed}")
print("out", n, seed)
