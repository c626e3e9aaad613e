/* Joins two names after their macros are replaced. Used by templates: headers that are included once
 * for each type, with the type's names as macros. */
#ifndef ACI_CAT_H
#define ACI_CAT_H

#define ACI_CAT_(a, b) a##b
#define ACI_CAT(a, b) ACI_CAT_(a, b)

#endif
