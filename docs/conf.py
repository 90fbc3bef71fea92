"""The site: `make docs` builds it in docs/_build/html."""

import sys
from pathlib import Path

import linnet

HERE = Path(__file__).parent
sys.path += [str(HERE / "_extensions"), str(HERE.parent)]

project = "Linnet"
author = "the Linnet contributors"
copyright = f"2026, {author}"
version = release = linnet.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    # Our own, in docs/_extensions.
    "atlas_page",
    "docstrings",
    "links",
    "reference",
    "unit_lenses",
    "unit_pages",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/GALLERY_HEADER.*"]
# Written by the gallery in earlier builds.
exclude_patterns += ["sg_execution_times.rst", "gallery/sg_execution_times.rst"]
nitpicky = True

html_theme = "furo"
html_title = "Linnet"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["linnet.css"]
html_search_scorer = str(HERE / "_static" / "scorer.js")
html_show_sourcelink = False

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4

# Signatures name the types as the code does; most of them are torch's, whose pages we cannot check offline.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
viewcode_line_numbers = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    # Blocks print what they show; the value of a last expression, such as torch.manual_seed(0), is no output.
    "capture_repr": (),
    # These pages load scripts from a network.
    "write_computation_times": False,
    "download_all_examples": False,
    "remove_config_comments": True,
}

linkcheck_timeout = 10
