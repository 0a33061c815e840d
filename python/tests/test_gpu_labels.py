"""Test of the labels of batches on the simulated GPU of `tests/simulated/`. This test has not run on a real GPU."""

import os
import subprocess
import sys
import textwrap


def test_labels_are_taken_from_the_device(simulated):
    program = """
        import ctypes
        import sys
        import types

        import feedwater as fw
        import numpy

        images = [(b"P6 8 8 255\\n" + bytes(192), number * 3) for number in range(8)]
        loader = fw.Loader(fw.samples(images), [fw.ops.Crop(width=8, height=8)], batch_size=4, framework="batch", device="cuda", epochs=1)
        begins = []
        for batch in loader.batches():
            assert batch.device == "cuda:0"
            labels = batch.values("label")
            assert labels.numpy().tolist() == batch.labels and labels.shape == [4]

            # PyTorch, which has no simulated GPU: it gets the memory of the device, and copies it there.
            taken = []

            class Taken:
                def __init__(self, tensor):
                    assert tensor.__dlpack_device__() == (2, 0)
                    self.tensor, self.capsule = tensor, tensor.__dlpack__(stream=1)
                    taken.append(self)

                def clone(self):
                    return self

            sys.modules["torch"] = types.SimpleNamespace(from_dlpack=Taken)
            images, labels = batch.pair("torch")
            assert [it.tensor.shape for it in taken] == [[4, 3, 8, 8], [4]] and [images, labels] == taken
            pointer = ctypes.pythonapi.PyCapsule_GetPointer
            pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            begins.append(ctypes.cast(pointer(labels.capsule, b"dltensor"), ctypes.POINTER(ctypes.c_void_p))[0])
            del batch, images, labels, taken
        assert None not in begins
        print("done", len(begins))
    """
    environment = {**os.environ, **simulated}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0 and done.stdout == "done 2\n", done.stdout + done.stderr
