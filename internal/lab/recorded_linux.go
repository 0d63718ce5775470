package lab

// Recorded returns the names of the labs in the state folder, whether or not they
// are whole.
func (m *Manager) Recorded() []string {
	records, _, err := m.records()
	if err != nil {
		m.cfg.Log.Warn("the labs' records could not be read", "error", err)
	}
	var names []string
	for _, r := range records {
		names = append(names, r.Definition.Name)
	}
	return names
}
