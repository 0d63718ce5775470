package labfile

// SchemaPath is where the schema is published, below the root of the tree.
const SchemaPath = "api/lab.schema.json"

// Schema is the JSON schema of lab files, for editors.
func Schema() ([]byte, error) { return format.Schema("", "A lab of netemd", file{}) }
