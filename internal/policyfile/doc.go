// Package policyfile has client policies as YAML: how one is read and written back, its JSON
// schema, and those that are built in.
package policyfile
