import inspect

from skellam import errors


def classes() -> dict[str, type[BaseException]]:
    return {
        name: kind
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, BaseException)
    }


def test_every_error_has_one_root():
    assert all(issubclass(kind, errors.SkellamError) for kind in classes().values())


def test_the_drawing_of_the_tree_names_every_error():
    assert [name for name in classes() if name not in errors.__doc__] == []


def test_domain_errors_are_value_errors_and_kind_errors_are_type_errors():
    assert issubclass(errors.DomainError, ValueError)
    assert issubclass(errors.KindError, TypeError)
    assert issubclass(errors.MissingExtraError, ImportError)


def test_a_tamper_error_names_the_culprit():
    assert errors.TamperError("lied", culprit=7).culprit == 7
    assert errors.TamperError("lied").culprit is None
