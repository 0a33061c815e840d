"""Tests that recipes keep their settings when they are sliced, added or changed."""

import copy
import pickle

import pytest

import feedwater as fw
from feedwater import ops

ERASING = ops.RandomErasing(probability=0.5)


def settings(recipe):
    return recipe.sections, recipe.rest


def half(image):
    return image / 2


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe + [ERASING],
        lambda recipe: [ERASING] + recipe,
        lambda recipe: recipe[:-1],
        lambda recipe: recipe[::-1],
        lambda recipe: recipe * 2,
        lambda recipe: 2 * recipe,
        lambda recipe: recipe.copy(),
        lambda recipe: recipe + recipe,
        lambda recipe: sum([[ERASING], [ERASING]], recipe),
        copy.copy,
        copy.deepcopy,
        lambda recipe: pickle.loads(pickle.dumps(recipe)),
    ],
)
def test_what_is_made_of_a_recipe_keeps_its_settings(change):
    recipe = fw.train_recipe(8)
    recipe.sections["output"] = {"dtype": "f16"}
    changed = change(recipe)
    assert isinstance(changed, fw.Recipe) and settings(changed) == settings(recipe)
    assert list(changed) == list(change(list(recipe)))
    # The two recipes share no state.
    changed.sections["loader"]["shuffle"] = None
    assert recipe.sections["loader"] == {"shuffle": True}


def test_changes_in_place_keep_the_settings():
    for change in (lambda it: it.append(ERASING), lambda it: it.extend([ERASING]), lambda it: it.__iadd__([ERASING])):
        recipe = fw.train_recipe(8)
        change(recipe)
        assert recipe[-1] == ERASING and recipe.sections == {"loader": {"shuffle": True}} and len(recipe) == 4
    assert list(fw.train_recipe(8) + (ERASING,)) == list(fw.train_recipe(8) + [ERASING])
    recipe *= 2
    assert len(recipe) == 8 and recipe.sections == {"loader": {"shuffle": True}}


def test_a_longer_recipe_shuffles(folder):
    def order(chain):
        with fw.Loader(folder, chain, batch_size=20, framework="batch") as loader:
            return next(iter(loader)).indices

    recipe = fw.train_recipe(4)
    assert order(recipe + [ERASING]) == order(recipe[:2]) == order(recipe) != list(range(20))


def test_recipes_that_contradict_each_other_are_not_added():
    with pytest.raises(ValueError, match="shuffle = True.* False"):
        fw.train_recipe(8) + fw.eval_recipe(8)
    both = fw.train_recipe(8) + fw.Recipe([ERASING], {"loader": {"last_batch": "pad"}, "output": {"dtype": "u8"}})
    assert both.sections == {"loader": {"shuffle": True, "last_batch": "pad"}, "output": {"dtype": "u8"}}


@pytest.mark.parametrize("rest", [3, "half", [len, 3]])
def test_the_rest_of_a_recipe_is_functions(rest):
    with pytest.raises(TypeError, match="it is a list of functions that run in Python"):
        fw.Recipe([ops.Crop(width=4, height=4)], rest=rest)


def test_no_operator_follows_what_stays_python():
    recipe = fw.Recipe([ops.Crop(width=4, height=4)], rest=[half])
    assert settings(recipe[:]) == settings([ERASING] + recipe) == settings(recipe * 1) == ({}, [half])
    for change in (
        lambda: recipe + [ERASING],
        lambda: recipe * 2,
        lambda: recipe.append(ERASING),
        lambda: recipe.extend([ERASING]),
        lambda: recipe + fw.train_recipe(4),
    ):
        with pytest.raises(ValueError, match="stay Python"):
            change()
    assert list(recipe) == [ops.Crop(width=4, height=4)]
    assert settings(recipe + []) == settings(recipe) and settings(pickle.loads(pickle.dumps(recipe))) == settings(recipe)


def test_a_recipe_may_have_one_mean_for_gray_images(folder):
    recipe = [ops.Grayscale(channels=1)] + fw.eval_recipe(8, mean=0.5, std=0.25)
    images = next(iter(fw.Loader(folder, recipe, batch_size=4, framework="numpy")))[0]
    assert images.shape == (4, 1, 8, 8)
