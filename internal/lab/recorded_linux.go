package lab

// Recorded returns the names of the labs in the state folder, whether or not they
// are whole.
func (m *Manager) Recorded() []string {
	records, err := m.records()
	if err != nil {
		m.cfg.Log.Warn("a lab's record could not be read", "err", err)
	}
	var names []string
	for _, r := range records {
		names = append(names, r.Definition.Name)
	}
	return names
}
