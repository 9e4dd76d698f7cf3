import os
import sys
import time

import windlass

n = int(sys.argv[1])
folder = os.environ["WINDLASS_CHECKPOINT_DIR"]
path = os.path.join(folder, "step.txt")
step = 0
if os.path.exists(path):
    with open(path) as file:
        step = int(file.read())
while step < 40:
    if windlass.should_stop():
        sys.exit(0)
    step += 1
    time.sleep(0.25)
    with open(path + ".tmp", "w") as file:
        file.write(str(step))
    os.replace(path + ".tmp", path)
    windlass.log(step=step, loss=n / step)
print("finished", n)
