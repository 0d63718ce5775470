package wire

import (
	netemv1 "netemd/api/netem/v1"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
)

// LabUpRequest translates what a lab is made of for the agent.
func LabUpRequest(r labfile.Request) *netemv1.LabUpRequest {
	return &netemv1.LabUpRequest{Name: r.Name, Text: labText(r), As: r.As}
}

// LabUpRequestOf translates a request. A text in it is read by its Definition.
func LabUpRequestOf(m *netemv1.LabUpRequest) labfile.Request {
	return labRequest(m.GetName(), m.GetText(), m.GetAs())
}

// labText is the text of a request, nil for a built-in lab.
func labText(r labfile.Request) *netemv1.LabText {
	if r.Text == nil {
		return nil
	}
	return &netemv1.LabText{Yaml: string(r.Text), Path: r.From.Path, Folder: r.From.Folder}
}

func labRequest(name string, text *netemv1.LabText, as string) labfile.Request {
	r := labfile.Request{Name: name, As: as}
	if text != nil {
		r.Text, r.From = []byte(text.GetYaml()), labfile.Source{Path: text.GetPath(), Folder: text.GetFolder()}
	}
	return r
}

// LabDiffRequest translates what a lab is compared with: a text, or the definition of the one
// of that name that is up.
func LabDiffRequest(r labfile.Request) *netemv1.LabDiffRequest {
	return &netemv1.LabDiffRequest{Name: r.Name, Text: labText(r), As: r.As}
}

// LabDiffRequestOf translates a request. A text in it is read by its Definition.
func LabDiffRequestOf(m *netemv1.LabDiffRequest) labfile.Request {
	return labRequest(m.GetName(), m.GetText(), m.GetAs())
}

// LabDifferences translates for a client.
func LabDifferences(all []lab.Difference) *netemv1.LabDiffResponse {
	m := &netemv1.LabDiffResponse{}
	for _, d := range all {
		m.Differences = append(m.Differences, &netemv1.LabDifference{Path: d.Path, Want: d.Want, Have: d.Have})
	}
	return m
}

// LabDifferencesOf translates an answer.
func LabDifferencesOf(m *netemv1.LabDiffResponse) []lab.Difference {
	var all []lab.Difference
	for _, d := range m.GetDifferences() {
		all = append(all, lab.Difference{Path: d.GetPath(), Want: d.GetWant(), Have: d.GetHave()})
	}
	return all
}
