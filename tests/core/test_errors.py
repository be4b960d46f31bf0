import pytest

from puorl.core.errors import MissingExtraError, PuorlError, require


def test_present_module_is_returned():
    assert require("json.decoder", extra="x", purpose="y").__name__ == "json.decoder"


def test_missing_module_names_the_install_line():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package.inner", extra="parquet", purpose="reading Parquet files")
    assert isinstance(caught.value, PuorlError)
    assert "reading Parquet files needs the package 'no_such_package'" in str(caught.value)
    assert "pip install 'puorl[parquet]'" in str(caught.value)
