"""What a caller says, as text: any recogniser behind one interface (`base`)."""
