package config

import (
	"fmt"
	"strconv"
	"time"

	"netemd/qdisc"
)

// String is the text that is read back.
func (d Duration) String() string { return qdisc.FormatDuration(time.Duration(d)) }

// String is the text that is read back.
func (b Bytes) String() string { return qdisc.Bytes(b).String() }

// String is the text that is read back.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// UnmarshalText reads "10m".
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := qdisc.ParseDuration(string(text))
	if err == nil {
		*d = Duration(v)
	}
	return err
}

// UnmarshalText reads "1MiB".
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := qdisc.ParseBytes(string(text))
	if err == nil {
		*b = Bytes(v)
	}
	return err
}

// maxMode are the bits of read, write and execute.
const maxMode = 0o777

// UnmarshalText reads 0666, in octal.
func (m *Mode) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || v > maxMode {
		return &qdisc.FieldError{Value: string(text), Want: "permissions in octal, such as 0666"}
	}
	*m = Mode(v)
	return nil
}
