package suite

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// JUnit reads the file that most of the other test programs can write: testcase elements, at any
// depth, with a failure, an error or a skipped element where they did not pass.
func JUnit(r io.Reader) ([]Test, error) {
	var all []Test
	d := xml.NewDecoder(r)
	found := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("junit: %w", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "testsuites", "testsuite":
			found = true
		case "testcase":
			var c testCase
			if err := d.DecodeElement(&c, &start); err != nil {
				return nil, fmt.Errorf("junit: %w", err)
			}
			all = append(all, c.test())
		}
	}
	if !found {
		return nil, errors.New("junit: no testsuite element")
	}
	return sorted(all), nil
}

type testCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Failure *struct{} `xml:"failure"`
	Error   *struct{} `xml:"error"`
	Skipped *struct{} `xml:"skipped"`
}

func (c testCase) test() Test {
	t := Test{Group: c.Class, Name: c.Name, State: Passed}
	switch {
	case c.Failure != nil || c.Error != nil:
		t.State = Failed
	case c.Skipped != nil:
		t.State = Skipped
	}
	return t
}
