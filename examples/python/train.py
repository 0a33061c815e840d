"""Trains a small network on a folder of classes, on one process or under torchrun, and continues from its checkpoint.

    python examples/python/train.py data/train
    torchrun --nproc-per-node 2 examples/python/train.py data/train --epochs 4
    torchrun --nproc-per-node 2 examples/python/train.py data/train --epochs 4 --fsdp

With --fsdp, the ranks shard the parameters and the optimizer's state instead of keeping full
copies. Each rank reads its own shard of the data. feedwater takes rank and world size from
torchrun's environment variables. The ranks communicate by gloo on CPUs, and by NCCL on GPUs.
"""

import argparse
import os
import pathlib

import feedwater as fw
import torch
from torch import distributed, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import fully_shard


def main():
    options = arguments()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
    if ranks > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    loader = fw.Loader(options.data, fw.train_recipe(options.size), batch_size=options.batch, seed=options.seed)
    network = small_network(len(loader.classes)).to(device)
    if options.fsdp:
        mesh = distributed.init_device_mesh(device.type, (ranks,))
        model = fully_shard(network, mesh=mesh)
    else:
        model = nn.parallel.DistributedDataParallel(network) if ranks > 1 else network
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    first = 0
    # Save and load whole tensors, even if each rank has only a shard of them.
    whole = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    if options.checkpoint.exists():
        checkpoint = torch.load(options.checkpoint, map_location="cpu")
        trained = {"model_state_dict": checkpoint["network"], "optim_state_dict": checkpoint["optimizer"]}
        states.set_state_dict(network, optimizer, **trained, options=whole)
        loader.load_state_dict(checkpoint["loader"])
        first = checkpoint["epoch"]
    for epoch in range(first, options.epochs):
        loss = train(model, optimizer, loader)
        network_state, optimizer_state = states.get_state_dict(network, optimizer, options=whole)
        # The loader's position is the same on all ranks, so rank 0 saves the checkpoint for all.
        if int(os.environ.get("RANK", "0")) == 0:
            trained = {"network": network_state, "optimizer": optimizer_state, "loader": loader.state_dict()}
            torch.save({**trained, "epoch": epoch + 1}, options.checkpoint)
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    right, seen = evaluate(model, options, device)
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"accuracy {right / seen:.3f} of {seen} images", flush=True)
    loader.close()
    if ranks > 1:
        distributed.destroy_process_group()


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder with one sub-folder per class")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16, help="images per rank")
    parser.add_argument("--size", type=int, default=32, help="side of the images, in pixels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fsdp", action="store_true", help="shard parameters over the ranks of torchrun")
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("checkpoint.pt"))
    return parser.parse_args()


def small_network(classes):
    layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, classes))


def train(model, optimizer, loader):
    """Runs one epoch. Returns the mean loss of this rank."""
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def evaluate(model, options, device):
    """Returns the numbers of correct and of all images, over all ranks."""
    counts = torch.zeros(2, device=device)
    model.eval()
    # `last_batch="pad"` gives all ranks the same number of batches. Padding is not counted.
    loader = fw.Loader(options.data, fw.eval_recipe(options.size), batch_size=options.batch, last_batch="pad", framework="batch")
    with loader, torch.inference_mode():
        for batch in loader:
            counted = torch.tensor([not sample["padding"] for sample in batch.samples], device=device)
            images, labels = batch.pair("torch")
            counts += torch.stack([((model(images).argmax(1) == labels) & counted).sum(), counted.sum()])
    if distributed.is_initialized():
        distributed.all_reduce(counts)
    return (int(count) for count in counts)


if __name__ == "__main__":
    main()
