package lab

import "errors"

// ErrUnknown is returned, wrapped with the known names, for a name that no lab has.
var ErrUnknown = errors.New("unknown lab")

// ErrConflict is returned when a lab cannot be made because something that is not
// part of it stands there: a namespace of the same name, or a lab of the same name
// with another definition. Nothing was changed.
var ErrConflict = errors.New("conflict")
